"""The client of a live server: address, connection, HTTP, metrics, load. It judges nothing."""

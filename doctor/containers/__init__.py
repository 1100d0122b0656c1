"""Containers and images from outside, through Docker's own client library; nothing is started."""

"""Many machines as one: reading many snapshots, deciding equal things once, Ray, links between them."""

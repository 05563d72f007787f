"""Complete small hosts, to copy from. A test runs each of them."""

"""One file per resource: typed params in, typed results out. They translate and never decide."""

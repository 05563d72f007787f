"""The RPC edge: frames, peers and dispatch. It translates between hosts and the application and decides nothing."""

"""Sessions: one actor each, the only writer of its log; their events, their hosts, their life."""

"""Who may do what: rules, session grants, and asking the host."""

"""Skills: playbooks in Markdown. Names and descriptions stand in the prefix, a body is loaded when it is used."""

"""Starting ranks: the command horovodrun."""

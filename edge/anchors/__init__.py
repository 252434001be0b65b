"""Where a text begins anew. What of it is an anchor, which zone a page is in and which section, from characters to tokens."""

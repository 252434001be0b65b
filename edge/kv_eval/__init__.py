"""What KV presets cost in quality: likeness to exact pages, needles, chains of decisions. Never: terminals."""

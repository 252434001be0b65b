"""Who runs next. Owns: the order of requests. Needs: the room that pages report. Never: tokens' meaning, offsets, tensors."""

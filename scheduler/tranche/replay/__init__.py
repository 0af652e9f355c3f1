"""What would have been: histories of any scheduler under other policies, and a scheduler that only watches."""

"""A user's script without a kv-store."""

print("trained alone")

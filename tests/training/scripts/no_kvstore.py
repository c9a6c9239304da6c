"""A user's script that forgot its kv-store."""
print("trained alone")

"""Who is asking, and what they may do.

Module map:

- `identity` who someone is and what they may touch
- `tokens`   service tokens and scoped tokens, known by their hashes
- `jwt`      bearer JWTs and the keys that verify them
- `gate`     from a request to an identity, and the answers 401 and 403
"""

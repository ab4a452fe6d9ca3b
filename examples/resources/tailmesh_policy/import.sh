# A tailnet has one policy file, so that any ID will do.
tofu import tailmesh_policy.this policy

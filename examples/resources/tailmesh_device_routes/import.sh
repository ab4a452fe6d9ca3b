# The routes that are enabled at that time become this resource's.
tofu import tailmesh_device_routes.ams1 n292kg92CNTRL

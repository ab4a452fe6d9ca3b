# The routes that are enabled at that time become this resource's: one that is not in the configuration is disabled. To own
# some of them and leave the others, create the resource instead, which adds to what is enabled.
tofu import tailmesh_device_routes.ams1 n292kg92CNTRL

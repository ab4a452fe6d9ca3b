tofu import 'tailmesh_device_tags.gateways["fra1"]' n292kg92CNTRL

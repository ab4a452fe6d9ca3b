package controlsim

func (s *Sim) previewPolicyFile(c *call) *refusal { return nil }

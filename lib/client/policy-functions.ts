// The entry file of `postern/client/policies`.
export { evaluateCue as cue } from "../cue/engine.ts";
export { applyPolicies } from "../policy/override.ts";
export { parsePolicies } from "../policy/policy-documents.ts";

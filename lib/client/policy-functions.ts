// The policy functions that the client package exports (infra/build/client.ts).
export { evaluate as cue } from "../cue/engine.ts";
export { applyPolicies } from "../policy/override.ts";
export { parsePolicies } from "../policy/policy-documents.ts";

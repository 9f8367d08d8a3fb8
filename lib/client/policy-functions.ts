// The entry file of the client package's export `./policies` (infra/build/client.ts).
export { evaluateCue as cue } from "../cue/engine.ts";
export { applyPolicies } from "../policy/override.ts";
export { parsePolicies } from "../policy/policy-documents.ts";

// The policy functions that the client package exports (infra/build/client.ts).
export { evaluate as cue } from "../cue/engine.ts";
export { policiesIn } from "../policy/loaded.ts";
export { applyPolicies } from "../policy/override.ts";

import { createInterface } from "node:readline";
import { createDraft } from "#lib/core/patch.ts";
import { evaluateCue } from "#lib/cue/engine.ts";
import { freezeDeep } from "#lib/json.ts";
import { applyOverridePoliciesInPlace } from "#lib/policy/override.ts";
import type { KinitirasPolicy, PolicyCapabilities } from "#lib/policy/types.ts";
import { evaluateValidatePolicies } from "#lib/policy/validate.ts";
import type { KinitirasBenchQuestion, TimedPolicyEvaluations } from "../peers/kinitiras.ts";

// Measures Postern's evaluation of policies. The process has the same input and output as the Go program that
// measures kinitiras.

const rejectCall = async () => {
  throw new Error("nothing is asked here");
};
const capabilities: PolicyCapabilities = {
  get: rejectCall,
  findFirst: rejectCall,
  fetchReference: rejectCall,
  sendScriptRequest: rejectCall,
  evaluateCue,
};

/** Parses an object's JSON, evaluates policies, and serializes the patch. This is the work of a review without HTTP. */
const evaluatePolicies = async (
  policies: readonly KinitirasPolicy[],
  text: string,
  operation: KinitirasBenchQuestion["operation"],
) => {
  const { value, changes } = createDraft(JSON.parse(text));
  const request = { operation, object: value };
  await applyOverridePoliciesInPlace(policies, request, capabilities);
  const { denied } = await evaluateValidatePolicies(policies, request, capabilities);
  return denied ? { denied: denied.reason } : { patch: JSON.stringify(changes()) };
};

const answer = async ({
  policies,
  object,
  operation,
  rounds,
}: KinitirasBenchQuestion): Promise<TimedPolicyEvaluations> => {
  const [text, nanoseconds] = [JSON.stringify(object), [] as number[]];
  freezeDeep(policies);
  for (let round = 1; ; round++) {
    const begun = process.hrtime.bigint();
    const { patch, denied } = await evaluatePolicies(policies, text, operation);
    nanoseconds.push(Number(process.hrtime.bigint() - begun));
    if (round >= rounds)
      return { nanoseconds, ...(patch && { patch: JSON.parse(patch) }), ...(denied !== undefined && { denied }) };
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const answered = await answer(JSON.parse(line)).catch((error): TimedPolicyEvaluations => {
    return { nanoseconds: [], error: String(error) };
  });
  process.stdout.write(`${JSON.stringify(answered)}\n`);
}

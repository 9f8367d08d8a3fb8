import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import { toSubject } from "../../functions/pod-security/pods.ts";
import type { PodSecurityLevel, PodSecurityVersion } from "../../functions/pod-security/policy.ts";
import { listOffences } from "../../functions/pod-security/standards.ts";
import {
  evaluateUpstreamPodSecurity,
  findPodSecurityEvaluator,
  readUpstreamTestPods,
  type UpstreamPodSecurityVerdict,
} from "../parity/pod-security/evaluator.ts";
import { needs } from "../parts.ts";
import { pods as generatedPods } from "./pods.ts";

// Compares the messages of the rule pod-security with those of upstream's own evaluator, at every version of the
// standards: for upstream's test pods, and for generated pods.
const evaluator = await findPodSecurityEvaluator();

const seed = 20_261_121;
/** The standards are compared from v1.0 to this minor, which is newer than any released one. */
const lastMinor = 40;

describe("pod-security beside upstream's evaluator", await needs("Pod Security evaluator"), () => {
  it("pod-security allows and denies upstream's test pods as their paths state, with upstream's messages", async () => {
    assert.ok(evaluator);
    const corpus = await readUpstreamTestPods(evaluator);
    const versions = new Set(corpus.map(({ place }) => place.split("/")[1]));
    assert.ok(corpus.length > 4000 && versions.size >= 36, "the test pods are complete");
    for (const { place, pod } of corpus) {
      const [level, version, wanted] = place.split("/") as [PodSecurityLevel, PodSecurityVersion, "pass" | "fail"];
      assert.equal(listOffences(toSubject(pod), { level, version }).length === 0, wanted === "pass", place);
    }
    await assertAgreement(dropDuplicates(corpus.map(({ pod }) => pod)));
  });

  it("pod-security gives upstream's messages for generated pods, which violate all checks", async () => {
    const pods = dropDuplicates(fc.sample(generatedPods, { seed, numRuns: 3000 }));
    const reasons = await assertAgreement(pods);
    assert.equal(reasons.size, 18, "every check finds a violation");
  });
});

/** Asserts that rule and evaluator find equal violations in each pod at every version. Returns the found reasons. */
async function assertAgreement(pods: Pod[]): Promise<Set<string>> {
  assert.ok(evaluator);
  const wanted = await evaluateUpstreamPodSecurity(evaluator, pods);
  assert.equal(wanted.length, pods.length);
  const reasonsFound = new Set<string>();
  for (const [index, pod] of pods.entries()) {
    const subject = toSubject(pod);
    const { latest, ...byVersion } = wanted[index] ?? assert.fail();
    for (const level of ["baseline", "restricted"] as const) {
      const listOfRule = (version: PodSecurityVersion) =>
        listOffences(subject, { level, version }).map(({ reason, detail }) => [reason, detail]);
      const describePod = () => `${level} ${JSON.stringify(pod)}`;
      assert.deepEqual(listOfRule("latest"), listOfEvaluator(latest[level]), describePod());
      for (let minor = 0; minor <= lastMinor; minor++) {
        const verdict = byVersion[level].findLast(({ since }) => since <= minor) ?? assert.fail();
        for (const reason of verdict.reasons ?? []) reasonsFound.add(reason);
        assert.deepEqual(listOfRule(`v1.${minor}`), listOfEvaluator(verdict), `v1.${minor} ${describePod()}`);
      }
    }
  }
  return reasonsFound;
}

const listOfEvaluator = ({ reasons, details }: UpstreamPodSecurityVerdict) =>
  (reasons ?? []).map((reason, index) => [reason, details?.[index]]);

function dropDuplicates(pods: object[]): Pod[] {
  return [...new Set(pods.map((pod) => JSON.stringify(pod)))].map((text) => JSON.parse(text));
}

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import type { Context } from "aws-lambda";
import fc from "fast-check";
import type { Mode } from "#lib/decide.ts";
import { endpoint, type Host } from "#lib/endpoint.ts";
import { recorded } from "#lib/recorded.ts";
import { type Heard, recorder } from "#lib/recording/recorder.ts";
import { redacted } from "#lib/recording/redacted.ts";
import type { Request } from "#lib/review.ts";
import { variantsOf } from "#lib/rule.ts";
import { merge } from "#lib/settings.ts";
import {
  type Case,
  casesIn,
  decideCase,
  decisionIn,
  differences,
  phaseOf,
  readCases,
  reviewOf,
} from "../infra/cases.ts";
import { type Listed, readCatalogue } from "../infra/registry.ts";
import { perturbed } from "./perturbed.ts";
import { signing } from "./signing.ts";

// What is recorded of a review is a case that says the same. POSTERN_RULES narrows it to some rules.
const only = process.env.POSTERN_RULES?.split(",").filter(Boolean) ?? [];
const catalogue = (await readCatalogue()).filter(({ name }) => only.length === 0 || only.includes(name));
const signer = signing(1);

/** Says something of the request that no case had said before. */
const envelope = fc
  .record(
    {
      namespace: fc.constantFrom("", "elsewhere", undefined),
      name: fc.constantFrom("", "somebody", undefined),
      subResource: fc.constantFrom("", "status", "a/b", undefined),
      requestSubResource: fc.constantFrom("", "scale"),
      requestKind: fc.constant({ group: "example.org", version: "v1beta3", kind: "Other" }),
      dryRun: fc.constantFrom(true, false, undefined),
      options: fc.constantFrom(null, { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1", fieldManager: "kubectl" }),
      userInfo: fc.record(
        { username: fc.string(), uid: fc.string(), extra: fc.dictionary(fc.string(), fc.array(fc.string())) },
        { requiredKeys: [] },
      ),
      __proto__: fc.constant({ odd: true }),
    },
    { requiredKeys: [] },
  )
  .map(
    (changes) =>
      (request: Request): Request =>
        JSON.parse(JSON.stringify({ ...request, ...changes })),
  );

/** What a rule's endpoint answers, and what is heard of it. */
const answered = async (listed: Listed, entry: Case, request: Request, mode: Mode) => {
  const { name, rule } = listed;
  const settings = merge(rule.settings ?? {}, entry.settings);
  const variants = variantsOf(rule, settings)?.map(({ name, settings = {} }) => [name, settings]);
  const heard: Heard[] = [];
  const host: Host = {
    publicKeys: signer.publicKey,
    world: () => recorded(entry.needs ?? {}),
    journal: () => {},
  };
  const ear = recorder(host, (one) => void heard.push(one));
  const share = {
    rule: name,
    ...(variants && { variants: Object.fromEntries(variants) }),
    clusters: { local: { keyVersions: [1], mode, settings } },
  };
  const phase = phaseOf(entry);
  const ways = [signer.segment("local"), name, phase, ...(variants && entry.variant ? [entry.variant] : [])];
  const path = `/${ways.join("/")}`;
  const event = {
    version: "2.0",
    rawPath: path,
    headers: { "content-type": "application/json" },
    requestContext: { http: { method: "POST", path } },
    body: JSON.stringify({ kind: "AdmissionReview", apiVersion: "admission.k8s.io/v1", request }),
  };
  const handler = endpoint(rule, share, ear.host, ear.judge);
  const { statusCode, body } = Object(await handler(event, {} as Context));
  return { statusCode, answer: JSON.parse(body), heard };
};

const law = async (listed: Listed, entry: Case, request: Request, mode: Mode = "enforce") => {
  const { statusCode, answer, heard } = await answered(listed, entry, request, mode);
  const what = `${entry.name}: ${JSON.stringify(request)}`;
  const [first, ...others] = heard;
  if (statusCode !== 200) {
    assert.deepEqual(heard, [], "a failure is no recording");
    return;
  }
  assert.ok(first && others.length === 0, what);
  const line = await first.line();
  assert.match(line, /^- \{.*\}\n$/, what);
  const [made] = casesIn(line, "a recording", [phaseOf(entry)]);
  assert.ok(made, what);
  const { uid: _, ...again } = reviewOf(listed, made).request;
  const { uid: __, ...before } = request;
  assert.deepEqual(again, before, what);
  assert.deepEqual(made.recorded, { rule: listed.name, cluster: "local", version: "$LATEST", at: made.now }, what);
  const decision = await decideCase(listed, made, reviewOf(listed, made));
  assert.deepEqual(differences(made, decision), [], what);
  if (mode !== "enforce") return;
  assert.deepEqual(differences(made, decisionIn(answer, request.uid) ?? assert.fail(what)), [], what);
};

for (const listed of catalogue) {
  const cases = await readCases(listed);
  describe(`what is recorded of ${listed.name}`, () => {
    it("is a case that says the same, for each of its cases", async () => {
      for (const entry of cases) await law(listed, entry, reviewOf(listed, entry).request);
    });
    it("is one in the other modes, and says what the rule says", async () => {
      for (const [index, entry] of cases.entries())
        await law(listed, entry, reviewOf(listed, entry).request, index % 2 === 0 ? "warn" : "audit");
    });
    it("is one for any requests like those", () =>
      fc.assert(
        fc.asyncProperty(perturbed(cases), envelope, async (entry, changes) => {
          const request = changes(reviewOf(listed, entry).request);
          // What a random text gives away is another law's matter.
          fc.pre(isDeepStrictEqual(redacted(request), request));
          await law(listed, entry, request);
        }),
        { numRuns: 10 },
      ));
  });
}

import { join } from "node:path";
import type { Context } from "aws-lambda";
import { evaluate } from "#lib/cue/engine.ts";
import { createEndpoint } from "#lib/endpoint.ts";
import { createUnconnectedCapabilities } from "#lib/needs.ts";
import type { OverridePolicy, OverrideRule } from "#lib/policy/kinds.ts";
import { catalogueFolder, readRule } from "../catalogue/registry.ts";
import { signing } from "../parity/test-key.ts";
import { cluster, shareOf } from "./handlers.ts";
import { compareInTurn, type Result, ratioOf, timeOf } from "./ratios.ts";
import { eventOf, reviewOfPod } from "./reviews.ts";

type Overriders = OverrideRule["overriders"];

const native = (index: number): Overriders => ({
  template: { type: "labels", operation: "add", path: `bench-${index}`, value: { string: "yes" } },
});
const scripted = (index: number): Overriders => ({
  cue: `object: _\npatches: [{op: "add", path: "/metadata/labels/bench-\\(len(object.spec.containers))-${index}", value: "yes"}]`,
});

/** For every pod, or for those of a shop that isn't there. */
const policy = (index: number, overriders: Overriders, matches: boolean): OverridePolicy => ({
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterOverridePolicy",
  metadata: { name: `policy-${index}` },
  spec: {
    resourceSelectors: [
      { apiVersion: "v1", kind: "Pod", labelSelector: { matchLabels: { app: matches ? "shop" : `shop-${index}` } } },
    ],
    overrideRules: [{ targetOperations: ["CREATE"], overriders }],
  },
});

/** Of this many policies that are for pods the first concerns the review's, or each does. */
const several = (count: number, overriders: (index: number) => Overriders, isEach: boolean) =>
  Array.from({ length: count }, (_, index) => policy(index, overriders(index), isEach || index === 0));

/** Compares reviews against many policies with one against a single one. */
export const measurePolicyCounts = async (rounds: number): Promise<Result[]> => {
  const listed = await readRule(join(catalogueFolder, "policy-override"), "policy-override");
  const signer = signing(1);
  const host = { publicKeys: signer.publicKey, world: createUnconnectedCapabilities, journal: () => {} };
  const event = eventOf(`/${signer.segment(cluster, 1)}/policy-override/mutate`, reviewOfPod(5_000));
  const asked = async (policies: OverridePolicy[], operations: number) => {
    const handler = createEndpoint(listed.rule, shareOf(listed, { policies, inCluster: false }), host);
    const act = async () => (await handler(event, {} as Context)) as { statusCode: number; body: string };
    const { statusCode, body } = await act();
    const patch = statusCode === 200 && JSON.parse(body).response.patch;
    if (!patch || JSON.parse(atob(patch)).length !== operations) throw new Error(`no answer to measure: ${body}`);
    return act;
  };

  // The first script would wait for CUE to start.
  await evaluate("1");
  const results: Result[] = [];
  const kinds = [
    { name: "a template", overriders: native, times: 100 },
    { name: "a script", overriders: scripted, times: 4 },
  ];
  for (const { name, overriders, times } of kinds) {
    const one = await asked(several(1, overriders, false), 1);
    for (const count of [10, 100, 1000]) {
      const many = await asked(several(count, overriders, false), 1);
      const ratios = await compareInTurn(rounds, lasting(one, times), lasting(many, times));
      results.push({
        what: `${name}, one of ${count} policies for the pod, over one alone`,
        ratio: ratioOf(ratios),
        bar: 1.2,
      });
    }
    const count = 10;
    const each = await asked(several(count, overriders, true), count);
    const ratios = await compareInTurn(rounds, lasting(one, times), lasting(each, Math.ceil(times / count), count));
    results.push({
      what: `${name}, each of ${count} policies that are all for it, over one alone`,
      ratio: ratioOf(ratios),
      bar: 1.2,
    });
  }
  return results;
};

/** Returns the milliseconds that one of so many takes, or each of its parts. */
const lasting =
  (act: () => Promise<unknown>, times: number, parts = 1) =>
  async () =>
    (await timeOf(act, times)) / times / parts;

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ValidatePolicy } from "#lib/policy/kinds.ts";
import { bundleRule } from "../build/bundle.ts";
import { catalogueFolder, readRule } from "../catalogue/registry.ts";
import type { Signer } from "../keys/keys.ts";
import { timeToAnswer, writeHandler } from "./cold-starts.ts";
import { cluster, shareOf } from "./handlers.ts";
import { compareInTurn } from "./ratios.ts";
import { eventOf, reviewOfPod } from "./reviews.ts";

const script = "object: _\nvalidate: {valid: len(object.spec.containers) < 10}";

const policy: ValidatePolicy = {
  apiVersion: "policy.kcloudlabs.io/v1alpha1",
  kind: "ClusterValidatePolicy",
  metadata: { name: "few-containers" },
  spec: { resourceSelectors: [{ apiVersion: "v1", kind: "Pod" }], validateRules: [{ cue: script }] },
};

/** Spawn of Node to a first answer that takes a script, over the same script and object in cue-wasm by itself. */
export const scriptedStarts = async (signer: Signer, folder: string, rounds: number): Promise<number[]> => {
  const name = "policy-validate";
  const listed = await readRule(join(catalogueFolder, name), name);
  const share = shareOf(listed, { policies: [policy], inCluster: false });
  await bundleRule(listed, share, folder, Number.POSITIVE_INFINITY);
  const event = eventOf(`/${signer.segment(cluster, 1)}/${name}/validate`, reviewOfPod(5_000));
  await writeFile(join(folder, name, "event.json"), JSON.stringify(event));
  const alone = await writeHandler(join(folder, "cue-wasm"), byItself);
  const starting = (place: string) => () => timeToAnswer(place, join(place, "event.json"), signer.publicKey);
  return compareInTurn(rounds, starting(alone.folder), starting(join(folder, name)));
};

const byItself = `exports.handler = async ({ body }) => {
  const { init } = await import(${JSON.stringify(import.meta.resolve("cue-wasm"))});
  const { toJSON } = await init("full");
  const object = JSON.stringify(JSON.parse(body).request.object);
  const { validate } = JSON.parse(toJSON(${JSON.stringify(script)} + "\\nobject: " + object));
  return { statusCode: validate.valid ? 200 : 500 };
};
`;

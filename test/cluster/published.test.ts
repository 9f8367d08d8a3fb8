import assert from "node:assert/strict";
import { relative } from "node:path";
import { after, before, describe, it } from "node:test";
import { toApiPath } from "#lib/objects/api-version.ts";
import { buildKindIndex, type KindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { readInput } from "../../infra/manifests/input.ts";
import type { Manifest } from "../../infra/manifests/manifests.ts";
import { chooseMinors, choosePart } from "../choices.ts";
import { newestMinor } from "../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs, needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";
import { bootPredictedCluster, describeDifference, type PredictedCluster } from "./prediction.ts";
import { findPublishedManifests } from "./published.ts";

// The results of `check` for manifests that other projects published must equal the answers of a real API server.

const {
  state: statePaths,
  first: kindsToCreateFirst,
  alone: separateKinds,
  known: knownDifferences,
} = readRows<{
  /** The API paths of the objects that plugins read. check gets these objects as the state of the cluster. */
  state: string[];
  /** The kinds of manifests that are created before the others are compared, because the others depend on them. */
  first: string[];
  /** The kinds that would affect all manifests, such as ResourceQuota. They are compared without the other kinds. */
  alone: string[];
  /** The manifests for which check and the API server differ, by the reason. */
  known: Record<string, string[]>;
}>(import.meta.filename);

const folder = (await findPublishedManifests()) ?? "";
const { skip } = await needs("published manifests");
const getName = ({ source, line }: Manifest) => `${relative(folder, source.name)}:${line}`;
const getKind = ({ object }: Manifest) => `${object.apiVersion} ${object.kind}`;

for (const minor of chooseMinors({ suiteGroup: 1 }))
  describe(`published manifests in Kubernetes ${minor}`, skip ? { skip } : await needsApiServer(minor), () => {
    let cluster: PredictedCluster;
    let kinds: KindIndex;
    let manifests: Manifest[];
    before(async () => {
      const input = await readInput([folder]);
      const objects = input.manifests.map(({ object }) => object);
      kinds = buildKindIndex(objects, minor);
      const isServed = ({ object }: Manifest) =>
        kinds.of(String(object.apiVersion), String(object.kind))?.isServedByDefault === true;
      // Each run checks a third of the manifests.
      const isChosen = choosePart("published manifests", 3);
      const isNeeded = (manifest: Manifest) => kindsToCreateFirst.includes(String(manifest.object.kind));
      const served = input.manifests.filter(isServed);
      manifests = served.filter((manifest, index) => isNeeded(manifest) || isChosen(index));
      const fill = async (admin: TestClusterClient) => {
        // One of the manifests is a Service that the API server also creates, sometimes only after it is ready.
        const path = "/api/v1/namespaces/default/services/kubernetes";
        await waitUntil(
          "there is no Service kubernetes",
          async () => (await admin({ method: "GET", path })).code === 200,
        );
        const labelPrefix = "pod-security.kubernetes.io";
        const labels = { [`${labelPrefix}/enforce`]: "baseline", [`${labelPrefix}/warn`]: "restricted" };
        const body = { metadata: { labels } };
        const contentType = "application/merge-patch+json";
        await admin({ method: "PATCH", path: "/api/v1/namespaces/default", body, contentType });
      };
      cluster = await bootPredictedCluster(minor, statePaths, { fill, validate: "strict" });
    });
    after(() => cluster?.stop());

    const create = (object: Record<string, unknown>, query = ""): Promise<TestClusterResponse> => {
      const { resource, namespaced } = kinds.of(String(object.apiVersion), String(object.kind)) ?? {};
      const { namespace = "default" } = Object(object.metadata);
      const collection = `${namespaced ? `/namespaces/${namespace}` : ""}/${resource?.resource}`;
      const path = `${toApiPath(String(object.apiVersion))}${collection}?fieldValidation=Strict${query}`;
      return cluster.admin({ method: "POST", path, body: object });
    };
    /** Creates all namespaces with their ServiceAccounts, because no controller creates ServiceAccounts. */
    const createNamespaces = async () => {
      const namespacesOfManifests = manifests.map(({ object }) => Object(object.metadata).namespace);
      for (const namespace of new Set(["default", ...namespacesOfManifests.filter((name) => name !== undefined)])) {
        await create({ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
        await create({ apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "default", namespace } });
      }
    };

    const counts: Record<string, number> = {};
    const count = (outcome: string) => {
      counts[outcome] = (counts[outcome] ?? 0) + 1;
    };
    const differences = new Map<string, string>();
    /** Predicts manifests together, and compares each prediction with the API server's answer to this manifest. */
    const compareAll = async (selected: readonly Manifest[]) => {
      if (selected.length === 0) return;
      const paths = [await cluster.writeManifests(selected.map(({ object }) => object))];
      const [byIndex, assumed] = [await cluster.predict(paths), await cluster.predictAssumed(paths)].map(
        (evaluations) => new Map(evaluations.map((evaluation) => [evaluation.subject.manifest.path[1], evaluation])),
      );
      for (const [index, manifest] of selected.entries()) {
        const evaluation = byIndex?.get(index);
        assert.ok(evaluation, getName(manifest));
        const answer = await create(manifest.object, "&dryRun=All");
        const { verdict } = evaluation.checked;
        const assumedResult = assumed?.get(index)?.checked;
        const name = getName(manifest);
        count(`${assumedResult?.verdict} by assumptions`);
        if (assumedResult?.verdict === "denied" && answer.code < 300)
          differences.set(name, `${name} is denied wrongly: ${JSON.stringify(assumedResult.denials)}`);
        count(`${answer.code} ${verdict}`);
        const difference = describeDifference(answer, evaluation, minor);
        // Kubernetes' handlers, which check uses, have the fields of the newest minor.
        const isNewer =
          minor !== newestMinor && answer.code === 400 && /unknown field/.test(String(answer.body.message));
        if (difference !== undefined && isNewer) count("with newer fields");
        else if (difference !== undefined) differences.set(name, `${name} is a ${getKind(manifest)}\n${difference}`);
      }
    };

    it("published manifests get equal answers from check and API server, except for known differences", async (t) => {
      const byKind = Map.groupBy(manifests, ({ object }) => String(object.kind));
      for (const kind of kindsToCreateFirst) {
        const selected = byKind.get(kind) ?? [];
        await compareAll(selected);
        for (const { object } of selected) await create(object);
        if (kind === "Namespace") await createNamespaces();
      }
      const otherManifests = manifests.filter(({ object }) => !kindsToCreateFirst.includes(String(object.kind)));
      for (const part of Map.groupBy(otherManifests, ({ object }) =>
        separateKinds.includes(String(object.kind)),
      ).values())
        await compareAll(part);
      t.diagnostic(`${manifests.length} manifests: ${JSON.stringify(counts)}`);

      assert.ok(manifests.length >= 500, `${manifests.length} manifests`);
      for (const outcome of ["201 allowed", "403 denied"]) assert.ok(counts[outcome], JSON.stringify(counts));
      assert.ok((counts["with newer fields"] ?? 0) <= 5, JSON.stringify(counts));
      const expected = new Set(Object.values(knownDifferences).flat());
      const unknown = [...differences].filter(([name]) => !expected.has(name)).map(([, text]) => text);
      assert.deepEqual(unknown.slice(0, 3), [], `${unknown.length} of ${manifests.length}`);
      const names = new Set(manifests.map(getName));
      const resolvedDifferences = [...expected].filter((name) => names.has(name) && !differences.has(name));
      assert.deepEqual(resolvedDifferences, [], "these don't differ any more");
    });
  });

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults } from "../../infra/apiserver/defaults/defaults.ts";
import { addOmitted } from "../../infra/check/evaluation/requests.ts";
import { chooseMinors } from "../choices.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { applyByKubectl } from "../kubectl/apply.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs, needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";

// Compares check with kubectl apply for stored objects that were not applied before.

type GivenObject = KubernetesObject & { [field: string]: unknown };
/** An object in the cluster, and a manifest that kubectl then applies. For Pods, only their specs are stated. */
interface Row<Value = GivenObject> {
  name: string;
  stored: Value;
  manifest: Value;
}
const { pods, objects } = readRows<{ pods: Row<object>[]; objects: Row[] }>(import.meta.filename);

const buildDeployment = (spec: object): GivenObject => {
  const labels = { app: "a" };
  const template = { metadata: { labels }, spec };
  return { apiVersion: "apps/v1", kind: "Deployment", spec: { selector: { matchLabels: labels }, template } };
};
const rows: Row[] = [
  ...pods.map(({ name, stored, manifest }) => {
    return { name, stored: buildDeployment(stored), manifest: buildDeployment(manifest) };
  }),
  ...objects,
];

/** The definition of a custom kind that accepts any fields. */
const definition = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "things.example.com" },
  spec: {
    group: "example.com",
    scope: "Namespaced",
    names: { plural: "things", singular: "thing", kind: "Thing", listKind: "ThingList" },
    versions: [
      {
        name: "v1",
        served: true,
        storage: true,
        schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
      },
    ],
  },
};

const { skip } = await needs("kubectl");
// Of a run's two minors of Kubernetes, the suites of group 0 test one, and the suites of group 1 the other.
for (const minor of chooseMinors({ suiteGroup: 0 }))
  describe(`kubectl apply in Kubernetes ${minor}`, skip ? { skip } : await needsApiServer(minor), () => {
    let cluster: TestCluster;
    before(async () => {
      cluster = await bootCluster(await requireBinaries(minor), { disable: ["ServiceAccount"] });
      const path = getCollectionPath(definition);
      assert.equal((await cluster.admin({ method: "POST", path, body: definition })).code, 201);
      const thingsPath = "/apis/example.com/v1/namespaces/default/things";
      await waitUntil("the definition is served", async () => {
        return (await cluster.admin({ method: "GET", path: thingsPath })).code === 200;
      });
    });
    after(() => cluster?.stop());

    /** Returns the fields of an object that are compared. */
    const selectComparedFields = ({ metadata, status, ...rest }: GivenObject) => {
      const { labels, finalizers, ownerReferences } = Object(metadata);
      return { ...rest, metadata: { labels, finalizers, ownerReferences } };
    };

    for (const [index, { name, stored, manifest }] of rows.entries())
      it(`kubectl apply stores the object that check computes from manifest and existing object: ${name}`, async () => {
        const metadata = { name: `row-${index}`, namespace: "default" };
        const addMetadata = (object: KubernetesObject) => {
          return { ...object, metadata: { ...object.metadata, ...metadata } };
        };
        const body = addMetadata(stored);
        const created = await cluster.admin({ method: "POST", path: getCollectionPath(body), body });
        assert.equal(created.code, 201, String(created.body.message));
        const givenObject = addMetadata(manifest);
        const applied = await applyByKubectl(cluster.admin, givenObject);
        assert.equal(applied?.code, 200, String(applied?.body.message));
        const computed = fillDefaults(addOmitted(givenObject, created.body as KubernetesObject), minor).object;
        assert.deepEqual(selectComparedFields(computed as GivenObject), selectComparedFields(applied.body));
      });
  });

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import type { AnyBinding, AnyPolicy } from "#lib/admission-policies/types.ts";
import { toMap } from "#lib/json.ts";
import type { NamedKubernetesObject } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults } from "../../infra/apiserver/defaults/defaults.ts";
import { requireBinaries } from "../control-plane/binaries.ts";
import { getCollectionPath, getObjectApiPath } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";

// Sends the cases of test/admission-cases.test.yaml that create an object to a real API server. Its answers must be
// those of the cases.

interface TestRow {
  name: string;
  files: NamedKubernetesObject[];
  /** Each case with the sentences about its unmet expectations, or the reason why it can't be evaluated. */
  cases: { case: Case; failed?: string[]; unevaluated?: string }[];
}
const testRows = readRows<TestRow[]>(fileURLToPath(new URL("../admission-cases.test.yaml", import.meta.url)));

/**
 * Reports whether an API server can answer as a case states. The case must pass in the newest minor, be evaluated, and
 * create an object. It must need no denial of the authorizer, because a cluster without RBAC allows all requests.
 */
const isComparable = ({ case: entry, failed, unevaluated }: TestRow["cases"][number]): boolean =>
  failed === undefined &&
  unevaluated === undefined &&
  (entry.operation ?? "CREATE") === "CREATE" &&
  (entry.needs?.may ?? []).every(({ allowed }) => allowed);

const withNamespace = (object: KubernetesObject) => {
  const isGlobal = /Policy|Binding|Definition|Namespace/.test(object.kind ?? "");
  const metadata = isGlobal ? {} : { namespace: "default" };
  return { ...object, metadata: { ...metadata, ...object.metadata } } as NamedKubernetesObject;
};

/** Adds the fields of a Deployment that an API server requires. Cases need only the fields that policies read. */
const addRequiredFields = (object: KubernetesObject): KubernetesObject => {
  const labels = { app: "web" };
  const template = { metadata: { labels }, spec: { containers: [{ name: "web", image: "web:1" }] } };
  const spec = { selector: { matchLabels: labels }, template, ...toMap(toMap(object).spec) };
  return object.kind === "Deployment" ? ({ ...object, spec } as KubernetesObject) : object;
};

/** Returns a binding that binds a policy to all objects. */
const buildBinding = ({ kind, metadata: { name }, spec: { paramKind } }: AnyPolicy) => {
  const paramRef = { selector: {}, parameterNotFoundAction: "Deny", namespace: "rules" };
  return {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: `${kind}Binding`,
    metadata: { name: "everything" },
    spec: {
      policyName: name,
      ...(paramKind && { paramRef }),
      ...(kind.startsWith("Validating") && { validationActions: ["Deny"] }),
    },
  };
};

/** The plugins that change pods, or need objects that controllers create. */
const disabledPlugins = ["DefaultTolerationSeconds", "Priority", "ServiceAccount"];

describe("cases of admission policies", await needs("API server"), () => {
  let cluster: TestCluster;
  before(async () => {
    cluster = await bootCluster(await requireBinaries(), { disable: disabledPlugins });
    const rules = { apiVersion: "v1", kind: "Namespace", metadata: { name: "rules" } };
    await cluster.admin({ method: "POST", path: "/api/v1/namespaces", body: rules });
  });
  after(() => cluster.stop());

  /** Creates objects or replaces them, by server-side apply. */
  const applyObjects = async (objects: readonly NamedKubernetesObject[]) => {
    for (const object of objects) {
      const path = `${getObjectApiPath(object)}?fieldManager=test&force=true`;
      const contentType = "application/apply-patch+yaml";
      const send = () => cluster.admin({ method: "PATCH", path, body: object, contentType });
      // The API server serves a kind only a short time after the creation of its definition.
      await waitUntil(`${object.kind} isn't served`, async () => (await send()).code < 300);
    }
  };

  const deleteObjects = async (objects: readonly NamedKubernetesObject[]) => {
    for (const object of objects) await cluster.admin({ method: "DELETE", path: getObjectApiPath(object) });
  };

  let lastAnswer: unknown;
  const isAnsweredAs = async (entry: Case): Promise<boolean> => {
    const { validate, mutate = validate, refused, becomes, warnings = [], user } = entry;
    const object = addRequiredFields(withNamespace(mutate ?? {}));
    const [plural, subresource] = (entry.resource ?? "").split("/");
    const path = subresource
      ? `/api/v1/namespaces/default/${plural}/${object.metadata?.name}/${subresource}`
      : getCollectionPath(object);
    const request = { method: "POST", path: `${path}?dryRun=All`, body: object } as const;
    const answer = await cluster.admin({ ...request, ...(user && { impersonate: user }) });
    lastAnswer = answer;
    const message = String(answer.body.message ?? "");
    if (refused !== undefined) return answer.code >= 400 && message.endsWith(refused);
    const isWarned =
      answer.warnings.length === warnings.length &&
      answer.warnings.every((text, index) => text.endsWith(`: ${warnings[index]}`));
    const expectedObject = becomes && fillDefaults(withNamespace(becomes)).object;
    // Of the changed object, only the labels and the spec are compared.
    const selectParts = (value: unknown) => [toMap(toMap(value).metadata).labels, toMap(value).spec];
    const hasBecome = !becomes || isDeepStrictEqual(selectParts(answer.body), selectParts(expectedObject));
    return answer.code === 201 && isWarned && hasBecome;
  };

  for (const { name, files, cases } of testRows) {
    const compared = cases.filter(isComparable).map((row) => row.case);
    const isKinitiras = files.some(({ apiVersion }) => apiVersion?.startsWith("policy."));
    if (compared.length === 0 || isKinitiras) continue;
    it(`the API server gives the answer that a case of admission policies states: ${name}`, async () => {
      const policies = files.filter(({ kind }) => kind?.endsWith("AdmissionPolicy")) as unknown as AnyPolicy[];
      const boundPolicies = files
        .filter(({ kind }) => kind?.endsWith("Binding"))
        .map((binding) => (binding as unknown as AnyBinding).spec.policyName);
      const addedBindings = policies.filter(({ metadata }) => !boundPolicies.includes(metadata.name)).map(buildBinding);
      const policyObjects = [...files, ...addedBindings].map(withNamespace);
      // The first case is a refusal, if possible: it shows that the API server evaluates the policies.
      const [refusals, others] = [true, false].map((isRefusal) =>
        compared.filter(({ refused }) => (refused !== undefined) === isRefusal),
      );
      try {
        for (const entry of [...(refusals ?? []), ...(others ?? [])]) {
          const objects = (entry.needs?.objects ?? []).map(withNamespace);
          await applyObjects([...policyObjects, ...objects]);
          // An API server can need 30 seconds for new kinds of parameters.
          await waitUntil("", () => isAnsweredAs(entry), 60_000).catch(() =>
            assert.fail(`the API server doesn't answer ${JSON.stringify(lastAnswer)} as ${JSON.stringify(entry)} says`),
          );
          await deleteObjects(objects.filter(({ kind }) => kind !== "Namespace"));
        }
      } finally {
        await deleteObjects(policyObjects);
      }
    });
  }
});

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

// The cases of test/admission-cases.test.yaml that create an object, in a real API server: it answers as they say.

interface Trial {
  name: string;
  files: NamedKubernetesObject[];
  cases: { case: Case; failed?: string[]; unevaluated?: string }[];
}
const trials = readRows<Trial[]>(fileURLToPath(new URL("../admission-cases.test.ts", import.meta.url)));

/** Cases that pass, in the newest minor, and whose answers of the authorizer are those of a cluster without RBAC. */
const isComparable = ({ case: entry, failed, unevaluated }: Trial["cases"][number]): boolean =>
  failed === undefined &&
  unevaluated === undefined &&
  (entry.operation ?? "CREATE") === "CREATE" &&
  (entry.needs?.may ?? []).every(({ allowed }) => allowed);

const withNamespace = (object: KubernetesObject) => {
  const isGlobal = /Policy|Binding|Definition|Namespace/.test(object.kind ?? "");
  const metadata = isGlobal ? {} : { namespace: "default" };
  return { ...object, metadata: { ...metadata, ...object.metadata } } as NamedKubernetesObject;
};

/** Returns an object with what an API server demands besides. Cases need only what policies read. */
const complete = (object: KubernetesObject): KubernetesObject => {
  const labels = { app: "web" };
  const template = { metadata: { labels }, spec: { containers: [{ name: "web", image: "web:1" }] } };
  const spec = { selector: { matchLabels: labels }, template, ...toMap(toMap(object).spec) };
  return object.kind === "Deployment" ? ({ ...object, spec } as KubernetesObject) : object;
};

/** Returns the binding to everything of a policy that the files bind nowhere. */
const bind = ({ kind, metadata: { name }, spec: { paramKind } }: AnyPolicy) => {
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

/** Plugins that change pods or need objects of controllers. */
const disable = ["DefaultTolerationSeconds", "Priority", "ServiceAccount"];

describe("cases of admission policies", await needs("API server"), () => {
  let cluster: TestCluster;
  before(async () => {
    cluster = await bootCluster(await requireBinaries(), { disable });
    const rules = { apiVersion: "v1", kind: "Namespace", metadata: { name: "rules" } };
    await cluster.admin({ method: "POST", path: "/api/v1/namespaces", body: rules });
  });
  after(() => cluster.stop());

  /** Creates objects or replaces them; an API server sets what it sets on each write. */
  const put = async (objects: readonly NamedKubernetesObject[]) => {
    for (const object of objects) {
      const send = () =>
        cluster.admin({
          method: "PATCH",
          path: `${getObjectApiPath(object)}?fieldManager=test&force=true`,
          body: object,
          contentType: "application/apply-patch+yaml",
        });
      // A kind is served a moment after its definition is there.
      await waitUntil(`${object.kind} isn't served`, async () => (await send()).code < 300);
    }
  };

  const remove = async (objects: readonly NamedKubernetesObject[]) => {
    for (const object of objects) await cluster.admin({ method: "DELETE", path: getObjectApiPath(object) });
  };

  let last: unknown;
  const isAnsweredAs = async (entry: Case): Promise<boolean> => {
    const { validate, mutate = validate, refused, becomes, warnings = [], user } = entry;
    const object = complete(withNamespace(mutate ?? {}));
    const path = `${getCollectionPath(object)}?dryRun=All`;
    const answer = await cluster.admin({ method: "POST", path, body: object, ...(user && { impersonate: user }) });
    last = answer;
    const message = String(answer.body.message ?? "");
    if (refused !== undefined) return answer.code >= 400 && message.endsWith(refused);
    const isWarned =
      answer.warnings.length === warnings.length &&
      answer.warnings.every((text, index) => text.endsWith(`: ${warnings[index]}`));
    const wanted = becomes && fillDefaults(withNamespace(becomes)).object;
    const hasBecome = (part: string) => {
      const read = (value: unknown) => (part === "labels" ? toMap(toMap(value).metadata).labels : toMap(value)[part]);
      return isDeepStrictEqual(read(answer.body), read(wanted));
    };
    return answer.code === 201 && isWarned && (!becomes || (hasBecome("labels") && hasBecome("spec")));
  };

  for (const { name, files, cases } of trials) {
    const compared = cases.filter(isComparable).map((one) => one.case);
    const isKinitiras = files.some(({ apiVersion }) => apiVersion?.startsWith("policy."));
    if (compared.length === 0 || isKinitiras) continue;
    it(`are answered as they say for ${name}`, async () => {
      const policies = files.filter(({ kind }) => kind?.endsWith("AdmissionPolicy")) as unknown as AnyPolicy[];
      const bound = files
        .filter(({ kind }) => kind?.endsWith("Binding"))
        .map((binding) => (binding as unknown as AnyBinding).spec.policyName);
      const assumed = policies.filter(({ metadata }) => !bound.includes(metadata.name)).map(bind);
      const all = [...files, ...assumed].map(withNamespace);
      // A refusal shows that the API server evaluates the policies.
      const refusedFirst = compared.toSorted(
        (left, right) => Number(right.refused !== undefined) - Number(left.refused !== undefined),
      );
      try {
        for (const entry of refusedFirst) {
          const objects = (entry.needs?.objects ?? []).map(withNamespace);
          await put([...all, ...objects]);
          // An API server needs half a minute for new kinds of parameters.
          await waitUntil("", () => isAnsweredAs(entry), 60_000).catch(() =>
            assert.fail(`the API server doesn't answer ${JSON.stringify(last)} as ${JSON.stringify(entry)} says`),
          );
          await remove(objects.filter(({ kind }) => kind !== "Namespace"));
        }
      } finally {
        await remove(all);
      }
    });
  }
});

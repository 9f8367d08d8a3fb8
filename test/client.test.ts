import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { type Guard, guard } from "#lib/client/client.ts";
import { joinApiVersion, toApiPath } from "#lib/objects/api-version.ts";
import { createRecordedCapabilities } from "#lib/recording/recorded-answers.ts";
import type { Case } from "#lib/recording/recording.ts";
import type { AdmissionRequest, KubernetesObject } from "#lib/review.ts";
import { getVariants, type Rule, selectPhase } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";
import {
  applyCaseSettingsAndVariant,
  buildReview,
  getCaseOperation,
  getCasePhase,
  readCases,
} from "../infra/catalogue/cases.ts";
import { type CatalogueRule, readCatalogue } from "../infra/catalogue/registry.ts";
import { createRecorder } from "./client/recorder.ts";

// Runs the cases of the catalogue as writes of a program with a guard.
const server = "https://cluster.example:6443";

const methods = { CREATE: "POST", UPDATE: "PUT", DELETE: "DELETE", CONNECT: "" } as const;

const buildPath = (
  { resource: { group, version, resource }, subResource, namespace, operation }: AdmissionRequest,
  name: string,
) =>
  [
    toApiPath(joinApiVersion({ group, version })),
    ...(namespace !== undefined && resource !== "namespaces" ? ["namespaces", namespace] : []),
    resource,
    ...(operation === "CREATE" && subResource === undefined ? [] : [name]),
    ...(subResource === undefined ? [] : [subResource]),
  ].join("/");

/** Adds the apiVersion, kind and name, which programs always send, but cases may omit. */
const completeObject = (
  object: unknown,
  { kind: { group, version, kind } }: AdmissionRequest,
  name: string | undefined,
): KubernetesObject => {
  const { metadata, ...rest }: KubernetesObject = Object(object);
  const namedMetadata = name === undefined ? metadata : { name, ...metadata };
  const typed = { apiVersion: joinApiVersion({ group, version }), kind };
  return namedMetadata ? { ...typed, metadata: namedMetadata, ...rest } : { ...typed, ...rest };
};

/** Returns the reason if a case can't be a write that a program sends through `guard`, which evaluates rules first. */
const explainExclusion = (listed: CatalogueRule, entry: Case): string | undefined => {
  const { rule, settings } = applyCaseSettingsAndVariant(listed.rule, entry);
  const phase = getCasePhase(entry);
  const conditionsOnUserRights = selectPhase(rule.authorizedBy, phase, settings) ?? {};
  if (Object.keys(conditionsOnUserRights).length > 0) return "only an API server can evaluate it";
  if (getCaseOperation(entry) === "CONNECT") return "it connects";
  return undefined;
};

/** Adds the namespace, which every stored object in a namespace has. */
const addNamespace = (object: KubernetesObject, { namespace, resource }: AdmissionRequest): KubernetesObject =>
  namespace === undefined || resource.resource === "namespaces"
    ? object
    : { ...object, metadata: { namespace, ...object.metadata } };

/** Replaces generated names, because they differ in each request. */
const normalizeNames = (object: unknown): unknown =>
  JSON.parse(JSON.stringify(object).replace(/"kube-api-access-\w+"/g, '"kube-api-access"'));

/** Removes the selectors of a rule or of a variant. */
const deleteSelectors = <R extends object>(rule: R) => {
  const { namespaceSelector: _, objectSelector: __, ...rest }: R & Partial<Pick<Rule, Selectors>> = rule;
  return rest;
};
type Selectors = "namespaceSelector" | "objectSelector";

/** Sends the request of a rule's case as a write through a guard: a `fetch` that applies rules, here only this rule. */
const sendCase = async (listed: CatalogueRule, entry: Case) => {
  const { request } = buildReview(listed, entry);
  const operation = getCaseOperation(entry);
  const phase = getCasePhase(entry);
  // The path of each write has a name, except that of the creation of an object.
  const name = request.name ?? (operation === "CREATE" && !request.subResource ? undefined : "Unknown");
  const path = buildPath(request, name ?? "");
  const object = completeObject(request.object, request, name);
  const storedObject = addNamespace(completeObject(request.oldObject, request, name), request);
  const { rule } = listed;
  // A case is a request that was already selected for the rule, so the guard must not select again.
  const { mutate: _, validate: __, ...ruleWithoutPhases } = deleteSelectors(rule);
  const variants = getVariants(rule, mergeWithDefaults(rule.settings ?? {}, entry.settings))?.map(deleteSelectors);
  const options: Guard = {
    server,
    ...(entry.kubernetes && { kubernetes: entry.kubernetes }),
    rules: {
      [listed.name]: {
        // A case tests one phase. The timeout is long enough for a busy machine.
        rule: { ...ruleWithoutPhases, timeoutSeconds: 60, ...(variants && { variants }), [phase]: rule[phase] },
        ...(entry.settings && { settings: entry.settings }),
        ...(entry.variant && { variant: entry.variant }),
      },
    },
    user: request.userInfo,
    capabilities: () => createRecordedCapabilities(entry.needs ?? {}),
    now: () => new Date(entry.now ?? "2026-01-01T00:00:00Z"),
  };
  const { send, writes } = createRecorder(operation === "CREATE" ? {} : { [path]: storedObject });
  const outcomes: Parameters<NonNullable<Guard["onOutcome"]>>[0][] = [];
  const query = request.dryRun ? "?dryRun=All" : "";
  const response = await guard(send, { ...options, onOutcome: (outcome) => void outcomes.push(outcome) })(
    `${server}${path}${query}`,
    {
      method: methods[operation],
      headers: { "content-type": "application/json" },
      ...(operation !== "DELETE" && { body: JSON.stringify(object) }),
    },
  );
  return { response, writes: writes(), outcomes, request, name, object };
};

for (const listed of await readCatalogue()) {
  const cases = await readCases(listed);
  describe(`${listed.name} in a client that applies the rule itself`, () => {
    for (const entry of cases) {
      const reason = explainExclusion(listed, entry);
      if (reason !== undefined) continue;
      it(entry.name, async () => {
        const { response, writes, outcomes, request, name, object } = await sendCase(listed, entry);
        if (entry.refused !== undefined) {
          const { message, code, reason } = Object(await response.json());
          // Without a message, the API server shows the reason.
          const sentence = entry.refused || (entry.reason ?? "Forbidden");
          assert.equal(message.replace(/^admission webhook "\S+" denied the request: /, ""), sentence);
          assert.deepEqual(
            [response.status, code, reason],
            [entry.code ?? 403, entry.code ?? 403, entry.reason ?? "Forbidden"],
          );
          assert.deepEqual(writes, []);
          return;
        }
        assert.ok(response.ok, await response.clone().text());
        const decided = outcomes.map(({ decision }) => decision?.outcome);
        assert.deepEqual(
          decided.flatMap((outcome) => outcome?.warnings ?? []),
          entry.warnings ?? [],
        );
        assert.deepEqual(Object.assign({}, ...decided.map((outcome) => outcome?.audit)), entry.audit ?? {});
        assert.equal(response.headers.has("warning"), entry.warnings !== undefined);
        assert.equal(writes.length, 1);
        if (getCaseOperation(entry) === "DELETE") return;
        const expected = entry.becomes ? completeObject(entry.becomes, request, name) : object;
        assert.deepEqual(normalizeNames(writes[0]?.body), normalizeNames(expected));
      });
    }
  });
}

it("the client can be bundled without warnings", async () => {
  const entryPoints = ["client", "policy-functions"].map((name) =>
    fileURLToPath(import.meta.resolve(`#lib/client/${name}.ts`)),
  );
  const format = { format: "esm", platform: "node", outdir: "out" } as const;
  const { warnings } = await build({ ...format, entryPoints, bundle: true, write: false, logLevel: "silent" });
  assert.deepEqual(warnings, []);
});

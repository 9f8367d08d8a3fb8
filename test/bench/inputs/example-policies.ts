import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { parse } from "yaml";
import { evaluateCue } from "#lib/cue/engine.ts";
import { isQuantity, parseQuantity } from "#lib/objects/quantity.ts";
import { matchesLabels } from "#lib/policy/selectors.ts";
import type { KinitirasPolicy, PolicyCapabilities, PolicyRequest } from "#lib/policy/types.ts";
import type { KubernetesObject, Operation } from "#lib/review.ts";
import { buildKindIndex } from "../../../infra/apiserver/kinds/kinds.ts";

/** A test case: policies, and their expected effect on an object. The effect was measured with kinitiras. */
export interface PolicyCase {
  id: string;
  operation: Operation;
  policies: KinitirasPolicy[];
  object?: KubernetesObject;
  oldObject?: KubernetesObject;
  requestNamespace?: string;
  cluster?: KubernetesObject[];
  http?: MockHttpAnswer[];
  /** A sentence that states how Postern's answer differs from kinitiras' answer, if it does. Postern's is expected. */
  deviation?: string;
  expect: {
    /** The expected answer when the policies themselves are created. */
    policy?: "accepted" | "rejected";
    object?: KubernetesObject;
    allowed?: boolean;
    reason?: string;
    error?: true;
  };
}

/** The answer to a path of the HTTP service `mock`, which policies of the test cases call. */
export interface MockHttpAnswer {
  path: string;
  status?: number;
  body?: unknown;
  /** The body of the mock's response as plain text, instead of `body`, which is sent as JSON. */
  raw?: string;
}

interface ExampleCase extends Omit<PolicyCase, "policies"> {
  policyFile: string;
  /** The index of the only rule of the policy that is evaluated. Without it, all rules are evaluated. */
  onlyRule?: number;
}

interface Tables {
  selectorObject: KubernetesObject;
  selectors: { id: string; selector: unknown; match: boolean }[];
  placeholders: {
    id: string;
    template: string;
    object: KubernetesObject;
    expect: { value?: string; unresolved?: true; error?: true };
  }[];
  paths: { id: string; path: string; segments: (string | number)[] }[];
  cases: PolicyCase[];
}

const folder = new URL("kinitiras-examples/", import.meta.url);
const readText = (file: string) => readFileSync(new URL(file, folder), "utf8");

/** Tables from cases.json: policies, selectors, placeholders and paths, and what kinitiras does with them. */
export const kinitirasCaseTables: Tables = JSON.parse(readText("cases.json"));

const toPolicyCase = ({ policyFile, onlyRule, ...rest }: ExampleCase): PolicyCase => {
  const policy: KinitirasPolicy = parse(readText(policyFile));
  if (onlyRule === undefined || policy.kind !== "ClusterValidatePolicy") return { ...rest, policies: [policy] };
  const validateRules = policy.spec.validateRules.slice(onlyRule, onlyRule + 1);
  const http = validateRules[0]?.template?.condition.dataRef?.http;
  if (http !== undefined) http.url = "http://mock/";
  return { ...rest, policies: [{ ...policy, spec: { ...policy.spec, validateRules } }] };
};

const examples: ExampleCase[] = JSON.parse(readText("examples.json")).cases;

/** The cases for the example policies that kinitiras ships. */
export const kinitirasExampleCases: readonly PolicyCase[] = examples.map(toPolicyCase);

/** Every measured case. */
export const benchPolicyCases: readonly PolicyCase[] = [...kinitirasCaseTables.cases, ...kinitirasExampleCases];

/** Reports whether a case needs an evaluation of CUE. */
export const needsCue = ({ policies }: PolicyCase): boolean => JSON.stringify(policies).includes('"cue":');

/** Builds the request of a policy case, as policies see it. */
export const buildPolicyCaseRequest = ({
  operation,
  object,
  oldObject,
  requestNamespace,
}: PolicyCase): PolicyRequest => {
  const subject = operation === "DELETE" ? oldObject : object;
  if (subject === undefined) throw new Error("a case must have an object, or an oldObject on DELETE");
  return {
    operation,
    object: structuredClone(subject),
    ...(operation === "UPDATE" && oldObject && { oldObject: structuredClone(oldObject) }),
    ...(requestNamespace !== undefined && { namespace: requestNamespace }),
  };
};

/** Returns policy capabilities that answer from a case, with the real CUE. */
export const createPolicyCaseCapabilities = ({
  cluster = [],
  http = [],
}: Pick<PolicyCase, "cluster" | "http"> = {}): PolicyCapabilities => {
  const filterObjects = (apiVersion: string, kind: string, namespace: string | undefined) =>
    cluster.filter(
      (object) =>
        object.apiVersion === apiVersion &&
        object.kind === kind &&
        (namespace === undefined || object.metadata?.namespace === namespace),
    );
  const answer = (address: string): Record<string, unknown> => {
    const { host, pathname } = new URL(address);
    if (host !== "mock") throw new Error(`${host} does not answer`);
    const { status = 200, body, raw } = http.find(({ path }) => path === pathname) ?? { status: 404 };
    if (status < 200 || status > 299) throw new Error(`${address} answered with status ${status}`);
    const value: unknown = raw === undefined ? structuredClone(body) : JSON.parse(raw);
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw new Error(`${address} answered with no JSON object`);
    return { ...value };
  };
  return {
    requireKind: async (apiVersion, kind) => {
      if (filterObjects(apiVersion, kind, undefined).length > 0 || builtIn.of(apiVersion, kind)) return;
      throw new Error(`the cluster serves no ${kind} of ${apiVersion}`);
    },
    get: async (apiVersion, kind, name, namespace) =>
      filterObjects(apiVersion, kind, namespace).find(({ metadata }) => metadata?.name === name),
    findFirst: async (apiVersion, kind, labels, namespace) =>
      filterObjects(apiVersion, kind, namespace)
        .toSorted((one, other) => (formatPlace(one) < formatPlace(other) ? -1 : 1))
        .find(({ metadata }) => matchesLabels(labels, metadata?.labels)),
    fetchReference: async ({ url }) => ({
      body: answer(url),
      header: { "Content-Type": ["text/plain; charset=utf-8"] },
      trailer: {},
    }),
    sendScriptRequest: async ({ url }) => answer(url),
    evaluateCue,
  };
};

/** The kinds built into Kubernetes, which every cluster serves without CustomResourceDefinitions. */
const builtIn = buildKindIndex([]);

/** Returns NAMESPACE/NAME, by which objects are sorted. */
const formatPlace = ({ metadata }: KubernetesObject) => `${metadata?.namespace ?? ""}/${metadata?.name}`;

const droppedWhenEmpty = new Set([
  ...["annotations", "labels", "nodeSelector", "resources", "requests", "limits", "tolerations"],
  ...["affinity", "nodeAffinity", "podAffinity", "podAntiAffinity"],
]);

/**
 * Normalizes an object for comparisons: removes nulls, removes those empty maps and lists that mean the same as an
 * absent member, and replaces quantities by their amounts.
 */
export const normalizeObjectForComparison = (value: unknown, isQuantities = false): unknown => {
  if (isQuantities && (typeof value === "string" || typeof value === "number"))
    return isQuantity(String(value)) ? { nanos: parseQuantity(value)?.nanos } : value;
  if (Array.isArray(value)) return value.map((inner) => normalizeObjectForComparison(inner));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).flatMap(([key, inner]): [string, unknown][] => {
    const result = normalizeObjectForComparison(inner, key === "requests" || key === "limits" || isQuantities);
    const isEmpty = isDeepStrictEqual(result, {}) || isDeepStrictEqual(result, []);
    return inner === null || (isEmpty && droppedWhenEmpty.has(key)) ? [] : [[key, result]];
  });
  return Object.fromEntries(entries);
};

import type { Value } from "../cel/values.ts";
import { toMap } from "../json.ts";
import type { ParamKind, ParamRef } from "../kubernetes/admissionregistration/v1.ts";
import type { ObjectReader, ResourceType, ServedResource } from "../needs.ts";
import { splitApiVersion } from "../objects/api-version.ts";
import { toPlural } from "../recording/recorded-answers.ts";
import type { KubernetesObject } from "../review.ts";
import { typedGroups } from "./typed-objects.ts";
import { PolicyConfigurationError } from "./types.ts";

/** A kind of parameters, and its resource in the cluster. */
export interface ServedParamKind extends ServedResource {
  paramKind: Required<ParamKind>;
}

/** Guesses the resource of a kind of parameters: its plural is formed as for Kubernetes' own kinds. */
export const guessParamResource = ({ apiVersion = "", kind = "" }: ParamKind): ResourceType => {
  return { ...splitApiVersion(apiVersion), resource: toPlural(kind) };
};

/** Returns `params` for mutations: without its fields apiVersion and kind if upstream reads it with a typed client. */
export const toMutationParameter = (params: Value, { apiVersion = "" }: ParamKind = {}): Value => {
  if (!typedGroups.includes(splitApiVersion(apiVersion).group)) return params;
  const { apiVersion: _, kind: __, ...parameter } = toMap(params);
  return params === null ? null : (parameter as Value);
};

/** Finds the resource of a policy's parameters. Throws a PolicyConfigurationError if the cluster doesn't serve it. */
export const findParamKind = async (
  { apiVersion = "", kind = "" }: ParamKind,
  discover: ObjectReader["discover"],
): Promise<ServedParamKind> => {
  const served = await discover(apiVersion);
  const found = served?.find((resource) => resource.kind === kind && !resource.resource.includes("/"));
  if (found) return { ...found, paramKind: { apiVersion, kind } };
  const { group, version } = splitApiVersion(apiVersion);
  throw new PolicyConfigurationError(
    `failed to find resource referenced by paramKind: '${group}/${version}, Kind=${kind}'`,
  );
};

/**
 * Returns the values of `params` with which a policy is evaluated with a binding. If the binding has no paramRef, the
 * only value is null. Throws a PolicyConfigurationError in the cases in which upstream reports one.
 */
export const collectParameters = async (
  servedKind: ServedParamKind | undefined,
  paramRef: ParamRef | undefined,
  requestNamespace: string | undefined,
  reader: ObjectReader,
): Promise<readonly Value[]> => {
  if (servedKind === undefined || paramRef === undefined) return [null];
  const { paramKind, resource, namespaced } = servedKind;
  const { name, selector, namespace, parameterNotFoundAction } = paramRef;
  const paramNamespace = namespace || requestNamespace || undefined;
  if (namespaced && paramNamespace === undefined)
    throw new PolicyConfigurationError(
      "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
    );
  if (!namespaced && namespace)
    throw new PolicyConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`");
  const place: ResourceType = { ...splitApiVersion(paramKind.apiVersion), resource };
  const scope = namespaced ? paramNamespace : undefined;
  const read = async (): Promise<readonly (KubernetesObject | undefined)[]> =>
    name ? [await reader.get(place, name, scope)] : reader.list(place, scope, { labels: selector as object });
  const parameters = (await read()).filter((parameter) => parameter !== undefined);
  if (parameters.length === 0 && parameterNotFoundAction === "Deny")
    throw new PolicyConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction");
  // The elements of a list from the API server have no apiVersion and kind. The cast is safe: they are JSON.
  return parameters.map((parameter) => ({ ...parameter, ...paramKind }) as unknown as Value);
};

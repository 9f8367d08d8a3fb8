import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig } from "../config/config.ts";
import { buildWebhookConfigurations, type WebhookConfigurationOptions } from "./configurations.ts";
import { buildNativePolicies } from "./native-policies.ts";
import { buildFunctionRbacObjects } from "./rbac.ts";

/** Returns all objects for a cluster. Roles come first: a rule must be able to read before it gets reviews. */
export const buildClusterObjects = (
  catalogue: CatalogueRule[],
  cluster: ClusterConfig,
  registration: WebhookConfigurationOptions,
): object[] => [
  ...buildFunctionRbacObjects(catalogue, cluster, registration.name),
  ...buildNativePolicies(catalogue, cluster, registration.name),
  ...buildWebhookConfigurations(catalogue, cluster, registration),
];

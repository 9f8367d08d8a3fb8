import { dirname } from "node:path";
import { isGroupVersion, parseServedResources } from "#lib/cluster/live-capabilities.ts";
import { readApiServerListPages } from "#lib/cluster/pages.ts";
import type { ResourceType } from "#lib/needs.ts";
import { joinApiVersion, toApiPath } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { InspectedCluster } from "#lib/rule.ts";
import type { ClusterConfig } from "../config/config.ts";
import { resolveConfigPath } from "../config/connections.ts";
import { readManifestCluster } from "../manifests/manifest-cluster.ts";
import { type ClusterCredentialOptions, openClusterApi } from "./access.ts";
import type { ClusterApi } from "./api.ts";

/** Opens a cluster for inspection, or the folder of manifests that replaces the cluster in postern.yaml. */
export const openInspectedCluster = async (
  name: string,
  { connect, kubernetes }: ClusterConfig,
  deployer: ClusterCredentialOptions,
  file: string,
) => {
  if (deployer.kubeconfig === undefined && connect?.manifests !== undefined) {
    const folder = dirname(file);
    const { list } = await readManifestCluster(resolveConfigPath(connect.manifests, folder), kubernetes, folder);
    return { list };
  }
  return createInspectedCluster(await openClusterApi(name, connect, deployer));
};

const pageSize = 500;

/** Returns functions with which rules list objects and discover kinds in a cluster. */
export const createInspectedCluster = ({ read }: Pick<ClusterApi, "read">): Required<InspectedCluster> => ({
  list: async ({ group, version = "v1", resource }: ResourceType) => {
    const found: KubernetesObject[] = [];
    const path = `${toApiPath(joinApiVersion({ group, version }))}/${resource}`;
    const pages = readApiServerListPages(
      (query) => read(`${path}?${query}`),
      () => pageSize,
    );
    for await (const { items = [], apiVersion, kind } of pages)
      found.push(...(items as object[]).map((item) => ({ apiVersion, kind, ...item }) as KubernetesObject));
    return found;
  },
  discover: async (groupVersion) => {
    if (!isGroupVersion(groupVersion)) return undefined;
    const found = await read(toApiPath(groupVersion));
    return found === undefined ? undefined : parseServedResources(found);
  },
});

import { toList, toMap } from "#lib/json.ts";
import { isManagedService, type ManagedService } from "../catalogue/managed-services.ts";
import { Complaint } from "../cli/complaint.ts";
import type { PolicySupport } from "../config/config.ts";
import type { ClusterApi } from "./api.ts";

/** What an API server answers to /version. */
export interface ClusterVersion {
  /** The minor version of Kubernetes, such as `1.35`. */
  minor: string;
  /** The managed service, if the version names it, as `v1.35.2-eks-1a2b3c4` does. Versions of AKS don't name it. */
  service?: ManagedService;
}

/** Returns a cluster's minor version, such as 1.35, and its service if that is known from the version. */
export const readClusterVersion = async ({
  cluster,
  read,
}: Pick<ClusterApi, "cluster" | "read">): Promise<ClusterVersion> => {
  const answer = await read("/version");
  const minor = parseMinor(answer);
  if (minor === undefined)
    throw new Complaint(`cluster ${cluster}: its API server answers /version without a minor version`, 3);
  const [, service = ""] = /[-+](eks|gke)\b/.exec(String(toMap(answer).gitVersion)) ?? [];
  return { minor, ...(isManagedService(service) && { service }) };
};

/** Returns the minor version of Kubernetes that a cluster runs, such as `1.35`. */
export const readClusterMinor = async (api: Pick<ClusterApi, "cluster" | "read">): Promise<string> =>
  (await readClusterVersion(api)).minor;

/** Returns the minor version in an answer to /version. EKS adds a plus sign to it, such as `35+`. */
export const parseMinor = (answer: unknown): string | undefined => {
  const { major, minor } = toMap(answer);
  const [, digits] = /^(\d+)\+?$/.exec(String(minor)) ?? [];
  return major === "1" && digits !== undefined ? `1.${digits}` : undefined;
};

/** Reads which admission policies a cluster evaluates. */
export const readPolicySupport = async (api: Pick<ClusterApi, "cluster" | "read">): Promise<PolicySupport> => {
  const { resources } = toMap(await api.read("/apis/admissionregistration.k8s.io/v1"));
  const kinds = toList(resources).map((resource) => String(toMap(resource).kind));
  return { kubernetes: await readClusterMinor(api), kinds: [...new Set(kinds)] };
};

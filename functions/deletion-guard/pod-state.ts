import type { Pod } from "kubernetes-types/core/v1.d.ts";
import type { AdmissionRequest } from "postern/review";

export interface Settings {
  /** A pod with this label or annotation is guarded, whatever the value; an empty key matches no pod. */
  mark: { label: string; annotation: string };
  /** A pod is finished if one of those that are set says so. */
  finished: { annotation: string; condition: string; check: string };
  cleanUp: string;
  addresses: string[];
  ca: string;
  force: { users: string[]; groups: string[] };
  endingNamespaces: boolean;
}

/** A pod that is already being deleted isn't guarded: its end is up to the kubelet. */
export const isGuarded = ({ metadata = {} }: Pod, { mark }: Settings) =>
  !metadata.deletionTimestamp && (has(metadata.labels, mark.label) || has(metadata.annotations, mark.annotation));

export const isAnother = ({ metadata: one }: Pod, { metadata: other }: Pod) =>
  one?.uid !== undefined && other?.uid !== undefined && one.uid !== other.uid;

const has = (map: object | undefined, key: string) => key !== "" && Object.hasOwn(map ?? {}, key);

/** A pod that has no node or has ended has nothing to clean up. */
export const isAtWork = ({ spec, status }: Pod) =>
  Boolean(spec?.nodeName) && status?.phase !== "Succeeded" && status?.phase !== "Failed";

export const isFinished = ({ metadata, status }: Pod, { finished: { annotation, condition } }: Settings) =>
  (has(metadata?.annotations, annotation) && metadata?.annotations?.[annotation] === "true") ||
  (condition !== "" && status?.conditions?.some(({ type, status }) => type === condition && status === "True"));

export const mayForce = ({ userInfo: { username = "", groups = [] } }: AdmissionRequest, { force }: Settings) =>
  force.users.includes(username) || groups.some((group) => force.groups.includes(group));

export const ways = ({ finished: { annotation, condition, check } }: Settings) => [
  ...(annotation ? [`annotation ${annotation}=true shows`] : []),
  ...(condition ? [`condition ${condition} shows`] : []),
  ...(check ? ["its check finds out"] : []),
];

import type { Pod } from "kubernetes-types/core/v1.d.ts";
import type { Request } from "postern/review";

export interface Settings {
  /** Whose presence guards a pod; an empty key is nobody's. */
  mark: { label: string; annotation: string };
  /** What says that a pod is finished; any one of those that are set. */
  finished: { annotation: string; condition: string; check: string };
  /** Where the clean-up begins. */
  cleanUp: string;
  /** In which networks pods may be called. */
  addresses: string[];
  ca: string;
  force: { users: string[]; groups: string[] };
  endingNamespaces: boolean;
}

/** Whether a pod carries the mark, and isn't going already: the kubelet has the last word on those that are. */
export const isGuarded = ({ metadata = {} }: Pod, { mark }: Settings) =>
  !metadata.deletionTimestamp && (has(metadata.labels, mark.label) || has(metadata.annotations, mark.annotation));

export const isAnother = ({ metadata: one }: Pod, { metadata: other }: Pod) =>
  one?.uid !== undefined && other?.uid !== undefined && one.uid !== other.uid;

const has = (map: object | undefined, key: string) => key !== "" && Object.hasOwn(map ?? {}, key);

/** One that no node has, or that has ended, has nobody left to clean up. */
export const isAtWork = ({ spec, status }: Pod) =>
  Boolean(spec?.nodeName) && status?.phase !== "Succeeded" && status?.phase !== "Failed";

export const isFinished = ({ metadata, status }: Pod, { finished: { annotation, condition } }: Settings) =>
  (has(metadata?.annotations, annotation) && metadata?.annotations?.[annotation] === "true") ||
  (condition !== "" && status?.conditions?.some(({ type, status }) => type === condition && status === "True"));

export const mayForce = ({ userInfo: { username = "", groups = [] } }: Request, { force }: Settings) =>
  force.users.includes(username) || groups.some((group) => force.groups.includes(group));

export const ways = ({ finished: { annotation, condition, check } }: Settings) => [
  ...(annotation ? [`annotation ${annotation}=true shows`] : []),
  ...(condition ? [`condition ${condition} shows`] : []),
  ...(check ? ["its check finds out"] : []),
];

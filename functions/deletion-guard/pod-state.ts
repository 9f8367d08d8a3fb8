import type { Pod } from "postern/kubernetes/core/v1";
import type { AdmissionRequest } from "postern/review";

export interface DeletionGuardSettings {
  /** Pods with this label or annotation are guarded, with any value. An empty key matches no pod. */
  mark: { label: string; annotation: string };
  /**
   * A pod is finished if one of these says so: an annotation, a condition, or a URL (`check`). An empty text is off.
   */
  finished: { annotation: string; condition: string; check: string };
  /** The URL for the POST request that starts the clean-up. */
  cleanUp: string;
  /** The networks that contain the addresses of pods which the rule may call. */
  addresses: string[];
  ca: string;
  /** Users and groups that may delete a guarded pod with a grace period of 0 seconds. */
  force: { users: string[]; groups: string[] };
  /** Whether pods in a namespace that is being deleted are guarded, too. */
  endingNamespaces: boolean;
}

/** Reports whether a pod has the label or annotation of guarded pods, and no deletionTimestamp. */
export const isMarkedAndNotBeingDeleted = ({ metadata = {} }: Pod, { mark }: DeletionGuardSettings) =>
  !metadata.deletionTimestamp && (hasKey(metadata.labels, mark.label) || hasKey(metadata.annotations, mark.annotation));

/** Reports whether two pods have different uids. If a uid is missing, the pods count as the same. */
export const areDifferentPods = ({ metadata: left }: Pod, { metadata: right }: Pod) =>
  left?.uid !== undefined && right?.uid !== undefined && left.uid !== right.uid;

const hasKey = (map: object | undefined, key: string) => key !== "" && Object.hasOwn(map ?? {}, key);

/** Reports whether a pod has a node and hasn't ended. Only such a pod can have something to clean up. */
export const isRunningOnNode = ({ spec, status }: Pod) =>
  Boolean(spec?.nodeName) && status?.phase !== "Succeeded" && status?.phase !== "Failed";

/** Reports whether an annotation or a condition, named in the settings, says that a pod has finished its work. */
export const isFinished = ({ metadata, status }: Pod, { finished: { annotation, condition } }: DeletionGuardSettings) =>
  (hasKey(metadata?.annotations, annotation) && metadata?.annotations?.[annotation] === "true") ||
  (condition !== "" && status?.conditions?.some(({ type, status }) => type === condition && status === "True"));

/** Reports whether the user may delete a guarded pod with a grace period of 0 seconds. */
export const mayForceDeletion = (
  { userInfo: { username = "", groups = [] } }: AdmissionRequest,
  { force }: DeletionGuardSettings,
) => force.users.includes(username) || groups.some((group) => force.groups.includes(group));

/** Returns a phrase for each way in which a pod can report that it is finished, such as `annotation a=true`. */
export const describeFinishSettings = ({ finished: { annotation, condition, check } }: DeletionGuardSettings) => [
  ...(annotation ? [`annotation ${annotation}=true`] : []),
  ...(condition ? [`condition ${condition}`] : []),
  ...(check ? ["its check"] : []),
];

import type { Pod } from "kubernetes-types/core/v1.d.ts";
import type { Request, Status } from "../review.ts";
import { forbidden } from "../status.ts";
import { containersOf } from "./pod.ts";

/** What a container may have that reaches beyond its pod, in the words of those who let nobody in. */
const escalations = {
  hostNetwork: "a container using host network",
  hostPID: "a container using host pid",
  hostIPC: "a container using host ipc",
  privileged: "a privileged container",
};
type Escalation = keyof typeof escalations;

/** Refuses to exec into or attach to a pod that has one of these; the first one is named. */
export const keepOut = (
  of: readonly Escalation[],
  request: Request,
  pod: Pod | undefined,
  settings: { ephemeralContainers: boolean },
): { refuse: Status } | undefined => {
  if (pod === undefined) return { refuse: forbidden(request, `pods "${request.name ?? ""}" not found`) };
  const found = of.find((one) => (one === "privileged" ? isPrivileged(pod, settings) : pod.spec?.[one] === true));
  if (found) return { refuse: forbidden(request, `cannot exec into or attach to ${escalations[found]}`) };
};

const isPrivileged = (pod: Pod, { ephemeralContainers }: { ephemeralContainers: boolean }) =>
  containersOf(pod, ["initContainers", "containers", ...(ephemeralContainers ? ["ephemeralContainers" as const] : [])])
    .map(({ container }) => container.securityContext?.privileged)
    .includes(true);

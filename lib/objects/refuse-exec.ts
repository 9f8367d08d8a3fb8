import type { Pod } from "../kubernetes/core/v1.ts";
import type { ObjectPlace } from "../needs.ts";
import { forbidden } from "../refusals.ts";
import type { AdmissionRequest, Status } from "../review.ts";
import { listContainers } from "./pod.ts";

/** The fields that give a container access beyond its pod, and the words of the upstream plugins' messages for them. */
const escalations = {
  hostNetwork: "a container using host network",
  hostPID: "a container using host pid",
  hostIPC: "a container using host ipc",
  privileged: "a privileged container",
};
type Escalation = keyof typeof escalations;

interface ExecContext {
  request: AdmissionRequest;
  settings: { ephemeralContainers: boolean };
  pods(place: ObjectPlace): Promise<Pod | undefined>;
}

/** Refuses exec and attach for a pod with one of the given fields. The refusal names the first of them. */
export const refuseExec = async (
  fields: readonly Escalation[],
  { request, settings, pods }: ExecContext,
): Promise<{ refuse: Status } | undefined> => {
  const pod = await pods({ name: request.name ?? "", namespace: request.namespace });
  if (pod === undefined) return { refuse: forbidden(request, `pods "${request.name ?? ""}" not found`) };
  const found = fields.find((field) =>
    field === "privileged" ? isPrivileged(pod, settings) : pod.spec?.[field] === true,
  );
  if (found) return { refuse: forbidden(request, `cannot exec into or attach to ${escalations[found]}`) };
};

/** Reports whether any container of a pod is privileged. */
const isPrivileged = (pod: Pod, { ephemeralContainers }: ExecContext["settings"]) =>
  listContainers(pod, [
    "initContainers",
    "containers",
    ...(ephemeralContainers ? ["ephemeralContainers" as const] : []),
  ])
    .map(({ container }) => container.securityContext?.privileged)
    .includes(true);

import { startKubernetes } from "../infra/check/evaluation/kubernetes-handlers.ts";

type Started = ReturnType<typeof startKubernetes>;

const started = new Map<string | undefined, Started>();

/** Starts Kubernetes' request handlers (WebAssembly) once for each minor: tests share them to save memory and time. */
export const startSharedKubernetes = (minor: string | undefined): Started => {
  const found = started.get(minor) ?? startKubernetes(minor);
  started.set(minor, found);
  return found;
};

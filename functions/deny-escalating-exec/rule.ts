import { get } from "postern/needs";
import { keepOut } from "postern/objects/exec";
import { rule } from "postern/rule";

export default rule({
  summary:
    "Lets nobody exec into or attach to a pod that is privileged or shares its node's network, processes or IPC.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods/exec", "pods/attach"], operations: ["CONNECT"] }],
  settings: { ephemeralContainers: true },
  guards: true,
  // Another pod may have taken the name since, and a pod gets ephemeral containers as it runs.
  needs: { pods: get("pods", { maxAge: 0 }) },

  async validate(_, { request, settings, pods }) {
    const pod = await pods(request.name ?? "", request.namespace);
    return keepOut(["hostNetwork", "hostPID", "hostIPC", "privileged"], request, pod, settings);
  },
});

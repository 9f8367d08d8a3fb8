import { get } from "postern/needs";
import { refuseExec } from "postern/objects/refuse-exec";
import { rule } from "postern/rule";

export default rule({
  summary: "Refuses exec and attach to pods that are privileged or share their node's network, processes or IPC.",
  match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods/exec", "pods/attach"], operations: ["CONNECT"] }],
  settings: { ephemeralContainers: true },
  guards: true, // a security rule: hardening makes it fail closed
  // The pod is read without the cache: it may have been replaced, and a running pod can get ephemeral containers.
  needs: { pods: get("pods", { maxAge: 0 }) },

  validate: (_, context) => refuseExec(["hostNetwork", "hostPID", "hostIPC", "privileged"], context),
});

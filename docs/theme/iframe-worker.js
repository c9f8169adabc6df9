// Browsers refuse workers to pages that are opened from disk. The search, which is one, then runs in a hidden
// frame; the theme knows this arrangement by the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const queue = [];
      const frame = document.createElement("iframe");
      let ready = false;
      const send = (data) => frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      this.postMessage = (data) => (ready ? send(data) : queue.push(data));
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = new URL(url, location.href).href;
      script.onload = () => {
        ready = true;
        queue.forEach(send);
      };
      inner.document.head.append(script);
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}

import subprocess
import sys
import threading

import matplotlib

from noisycgd._drawing import default_style


def test_threads_leave_the_users_style_alone():
    with matplotlib.rc_context({"font.size": 17}):
        inside, leave = threading.Event(), threading.Event()
        seen = []

        def draw(wait):
            with default_style():
                seen.append(matplotlib.rcParams["font.size"])
                inside.set()
                if wait:
                    leave.wait()

        threads = [threading.Thread(target=draw, args=(wait,)) for wait in (True, False)]
        threads[0].start()
        inside.wait()
        threads[1].start()
        # Without a lock the second thread would take the first one's style for the user's.
        threads[1].join(0.2)
        leave.set()
        for thread in threads:
            thread.join()
        assert seen == [10.0, 10.0]
        assert matplotlib.rcParams["font.size"] == 17


def test_matplotlib_is_loaded_late():
    code = "import sys\nimport noisycgd._drawing\nassert 'matplotlib' not in sys.modules\n"
    subprocess.run([sys.executable, "-c", code], check=True)
